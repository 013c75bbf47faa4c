package ir

var lossRows = map[Op]Def{}
