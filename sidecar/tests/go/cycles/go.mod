module cycles

go 1.21
