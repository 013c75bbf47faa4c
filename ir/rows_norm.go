package ir

var normRows = map[Op]Def{}
