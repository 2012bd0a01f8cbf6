package quoit_test

import (
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

func TestTheDoctorSaysWhatWouldRun(t *testing.T) {
	diagnosis := quoit.Doctor()
	loops, err := quoit.NewLoops(quoit.WithLoops(1), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer loops.Close()
	if diagnosis.Engine != loops.Engine() || diagnosis.Reason == "" || loops.EngineReason() == "" {
		t.Errorf("the doctor says %v (%s); %v runs (%s)",
			diagnosis.Engine, diagnosis.Reason, loops.Engine(), loops.EngineReason())
	}
	var text strings.Builder
	if _, err := diagnosis.WriteTo(&text); err != nil || !strings.Contains(text.String(), diagnosis.Reason) {
		t.Errorf("%v\n%s", err, &text)
	}
	for _, feature := range diagnosis.Features {
		if feature.Usable == (feature.Reason != "") && !feature.Usable {
			t.Errorf("%s is missing without a reason", feature.Name)
		}
	}
}

func TestFeaturesCanBeSwitchedOff(t *testing.T) {
	if quoit.Doctor().Engine != quoit.EngineURing {
		t.Skip("io_uring does not run here: " + quoit.Doctor().Reason)
	}
	server := start(t, echoes(), quoit.WithEngine(quoit.EngineURing), quoit.WithoutBufferRing(),
		quoit.Without("defer-taskrun"))
	roundTrip(t, dial(t, server.Addr()), "hello")
	_, err := quoit.NewLoops(quoit.WithEngine(quoit.EngineURing), quoit.Without("nonsense"))
	if err == nil || !strings.Contains(err.Error(), "nonsense") || !strings.Contains(err.Error(), "buffer-ring") {
		t.Error(err)
	}
}
