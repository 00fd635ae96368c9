module kubothek.io/tests/testcluster/pause

go 1.26
