package lb

// IdleEnds counts TCP connections that were established and silent for too long.
type IdleEnds struct {
	Told   uint64 // both ends got a RST
	Untold uint64 // they ended in silence: too many at once
}
