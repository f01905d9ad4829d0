module pprof_writer

go 1.21
