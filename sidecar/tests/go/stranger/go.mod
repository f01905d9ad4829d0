module stranger

go 1.21
