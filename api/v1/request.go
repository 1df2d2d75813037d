package v1

import "reflect"

// Entry is the one service of a request that is no list. The request has to have arguments.
func (r *LoadbalanceRequest) Entry() LoadbalanceEntry {
	var e LoadbalanceEntry
	copyShared(reflect.ValueOf(&e).Elem(), reflect.ValueOf(r).Elem())
	e.ServiceArguments = *r.ServiceArguments
	return e
}

// RequestOf asks for one service as any server of the contract takes it, or for several as ours
// does.
func RequestOf(list []LoadbalanceEntry) LoadbalanceRequest {
	if len(list) != 1 {
		return LoadbalanceRequest{LbAttr: list}
	}
	var r LoadbalanceRequest
	copyShared(reflect.ValueOf(&r).Elem(), reflect.ValueOf(&list[0]).Elem())
	r.ServiceArguments = &list[0].ServiceArguments
	return r
}

// Alone tells whether the request has lbAttr, and nothing beside it.
func (r *LoadbalanceRequest) Alone() bool {
	return reflect.DeepEqual(*r, LoadbalanceRequest{LbAttr: r.LbAttr})
}

// copyShared copies the members that both have, of the same name and type.
func copyShared(to, from reflect.Value) {
	for i := range to.NumField() {
		if f := from.FieldByName(to.Type().Field(i).Name); f.IsValid() && f.Type() == to.Field(i).Type() {
			to.Field(i).Set(f)
		}
	}
}
