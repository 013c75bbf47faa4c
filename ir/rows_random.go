package ir

var randomRows = map[Op]Def{}
