package dryrun

import "loxilb/internal/kernel/datapath/loader"

// Live is the collection that is not to change.
func (r *Runner) Live() *loader.Collection { return r.live }

// Unload gives it up, as after a while without questions.
func (r *Runner) Unload() { r.unload() }
