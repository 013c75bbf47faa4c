package ir

var unaryRows = map[Op]Def{}
