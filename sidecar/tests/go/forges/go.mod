module forges

go 1.21
