package ir

var activationRows = map[Op]Def{}
