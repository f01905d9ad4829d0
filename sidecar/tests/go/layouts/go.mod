module layouts

go 1.21
