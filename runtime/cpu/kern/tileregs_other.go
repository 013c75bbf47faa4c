//go:build !(linux && amd64)

package kern

// askTileRegisters finds none: only Linux grants them by a known request.
func askTileRegisters() TileState { return TileState{} }
