"""The analyses: functions from frames to frames. No MLflow, no TensorFlow, no page; what they cannot know they say."""
