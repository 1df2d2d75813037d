package dryrun

import "loxilb/internal/kernel/datapath/loader"

// Live returns the live collection, which dry runs must not change.
func (r *Runner) Live() *loader.Collection { return r.live }

// Unload unloads the programs, as after some time without dry runs.
func (r *Runner) Unload() { r.unload() }
