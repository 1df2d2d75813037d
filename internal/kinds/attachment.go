package kinds

import (
	"fmt"
	"strconv"

	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// uniquePerTarget makes stored refuse a second object for the same target and direction.
func uniquePerTarget[T any](stored Stored[T], kind string, at func(T) policy.Attachment) Stored[T] {
	stored.Plural = kind + "s"
	stored.UniqueValues = func(o T) (list []string) {
		a := at(o)
		for _, back := range []bool{false, true} {
			if a.Direction.Has(back) {
				list = append(list, TargetOf(a.To, a.Name, back))
			}
		}
		return list
	}
	stored.RefuseDuplicate = func(o T, other string) error {
		return lb.NewFieldError(lb.FieldTarget, at(o).Name, "has "+kind+" "+other+" already", "one "+kind+" for each direction")
	}
	return stored
}

// TargetOf returns the unique value of objects that are attached to a target by name, for packets
// towards endpoints, or back.
func TargetOf(to policy.AttachTo, name string, back bool) string {
	return fmt.Sprint(to, " ", name, " ", back)
}

// attachmentOf returns the attachment of a policer or mirror.
func attachmentOf(to int, name, direction string) (at policy.Attachment, err error) {
	at = policy.Attachment{Name: name, Direction: policy.Direction(direction)}
	at.To, err = policy.ParseAttachTo(strconv.Itoa(to))
	return at, err
}
