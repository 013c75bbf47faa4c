package ir

var attentionRows = map[Op]Def{}
