package ir

var shapeRows = map[Op]Def{}
