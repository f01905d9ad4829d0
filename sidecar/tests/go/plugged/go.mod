module plugged

go 1.21
