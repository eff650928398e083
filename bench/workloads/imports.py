"""Imports large packages: many shared libraries are loaded, many code objects are new."""

import asyncio
import decimal
import email.mime.text
import json
import sqlite3
import unittest.mock
import xml.etree.ElementTree

import numpy
import pandas
