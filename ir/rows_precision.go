package ir

var precisionRows = map[Op]Def{}
