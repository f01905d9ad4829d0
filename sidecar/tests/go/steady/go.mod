module steady

go 1.21
