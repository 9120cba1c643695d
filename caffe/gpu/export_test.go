package gpu

// Forget has m not be spared by the next Ahead, whoever reads it: a mistake, for a test that has to find it.
func (m *Memory) Forget() { m.used = nil }
