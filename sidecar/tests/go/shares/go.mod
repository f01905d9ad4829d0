module shares

go 1.22
