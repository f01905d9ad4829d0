module matrix

go 1.21
