package ir

var linearRows = map[Op]Def{}
