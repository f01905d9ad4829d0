module unmaps

go 1.21
