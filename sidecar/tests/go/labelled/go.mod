module labelled

go 1.18
