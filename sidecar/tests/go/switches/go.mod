module switches

go 1.21
