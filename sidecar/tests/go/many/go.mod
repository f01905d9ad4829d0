module many

go 1.21
