module offsets

go 1.21
