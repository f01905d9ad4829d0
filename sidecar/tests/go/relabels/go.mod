module relabels

go 1.21
