module served

go 1.21
