package ir

var indexRows = map[Op]Def{}
