package ir

var poolRows = map[Op]Def{}
