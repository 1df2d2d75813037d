package v1

import "reflect"

// Entry returns the service of a request for one service. The request must have arguments.
func (r *LoadbalanceRequest) Entry() LoadbalanceEntry {
	var e LoadbalanceEntry
	copyShared(reflect.ValueOf(&e).Elem(), reflect.ValueOf(r).Elem())
	e.ServiceArguments = *r.ServiceArguments
	return e
}

// RequestOf returns a request for services: one in the existing loxilb's form, which any server
// accepts, or several in lbAttr.
func RequestOf(list []LoadbalanceEntry) LoadbalanceRequest {
	if len(list) != 1 {
		return LoadbalanceRequest{LbAttr: list}
	}
	var r LoadbalanceRequest
	copyShared(reflect.ValueOf(&r).Elem(), reflect.ValueOf(&list[0]).Elem())
	r.ServiceArguments = &list[0].ServiceArguments
	return r
}

// Alone reports whether the request has lbAttr and no other property.
func (r *LoadbalanceRequest) Alone() bool {
	return reflect.DeepEqual(*r, LoadbalanceRequest{LbAttr: r.LbAttr})
}

// copyShared copies members with the same name and type.
func copyShared(to, from reflect.Value) {
	for i := range to.NumField() {
		if f := from.FieldByName(to.Type().Field(i).Name); f.IsValid() && f.Type() == to.Field(i).Type() {
			to.Field(i).Set(f)
		}
	}
}
