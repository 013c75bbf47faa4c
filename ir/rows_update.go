package ir

var updateRows = map[Op]Def{}
