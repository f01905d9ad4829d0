module signals

go 1.21
