package ir

var reduceRows = map[Op]Def{}
