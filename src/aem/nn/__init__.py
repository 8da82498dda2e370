"""Networks: functions of numbers, no probability."""
