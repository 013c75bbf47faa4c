package ir

var foreignRows = map[Op]Def{}
