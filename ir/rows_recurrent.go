package ir

var recurrentRows = map[Op]Def{}
