package nccl

import "ampc/world"

// Kill stops the watchdog of a rank, and with it the heartbeats, as the death of its process does.
func Kill(w world.World) {
	r := w.(*ranks)
	r.once.Do(func() { close(r.closing) })
	r.watcher.Wait()
}
