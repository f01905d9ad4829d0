module example.com/thread

go 1.21
