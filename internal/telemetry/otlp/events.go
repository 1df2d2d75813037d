package otlp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"loxilb/internal/event"
)

// follow sends events until ctx ends, as log records: the sentence, with its subject as attributes.
func (e *Exporter) follow(ctx context.Context, to log.Logger) {
	events := e.hub.Subscribe(event.Kinds()...)
	for {
		one, lost, err := events.Next(ctx)
		if err != nil {
			return
		}
		to.Emit(ctx, record(one, lost))
	}
}

func record(e event.Event, lost uint64) (r log.Record) {
	r.SetTimestamp(e.Time)
	r.SetEventName("loxilb." + string(e.Kind()))
	r.SetBody(attribute.StringValue(e.String()))
	r.SetSeverity(log.SeverityInfo)
	if e.Act() == event.Failed || e.Kind() == event.KindPressure && e.Act() == event.Began || e.Kind() == event.KindRevision && e.Act() == event.Removed {
		r.SetSeverity(log.SeverityWarn)
	}
	r.SetSeverityText(r.Severity().String())
	r.AddAttributes(attribute.String("loxilb.object", e.Object()), attribute.String("loxilb.action", string(e.Act())), attribute.Int64("loxilb.seq", int64(e.Seq)))
	if lost > 0 {
		r.AddAttributes(attribute.Int64("loxilb.lost", int64(lost)))
	}
	return r
}
