package kern

import "sync"

// TileState is whether products of bf16 can use the tile registers of AMX.
type TileState struct {
	Present bool // the processor has them; tested only on Linux
	Usable  bool // and the operating system lets this process use them
}

// TileRegisters asks for the tile registers, once for the process. Linux grants them to all of its threads.
var TileRegisters = sync.OnceValue(askTileRegisters)
