module parked

go 1.21
