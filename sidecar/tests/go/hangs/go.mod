module hangs

go 1.21
