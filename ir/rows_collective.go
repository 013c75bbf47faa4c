package ir

var collectiveRows = map[Op]Def{}
