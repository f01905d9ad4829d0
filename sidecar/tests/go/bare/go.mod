module bare

go 1.21
