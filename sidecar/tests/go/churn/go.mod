module churn

go 1.21
