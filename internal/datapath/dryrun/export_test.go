package dryrun

import "loxilb/internal/datapath/loader"

// Live is the collection that is not to change.
func (r *Runner) Live() *loader.Collection { return r.live }

// Loaded tells whether the second program is there.
func (r *Runner) Loaded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.double != nil
}

// Unload gives it up, as after a while without questions.
func (r *Runner) Unload() { r.unload() }
